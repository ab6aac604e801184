"""Tables that differ from site to site, harmonized into `Clients` without pooling their rows.

The steps, each of which can be taken alone, and the first three of which see one site only:

1. `read_sites`: files -> one `SiteTable` per site.
2. `propose`: tables -> `Schema`, as TOML text for a person to correct.
3. `summarize`: one site's table -> `Summary`, all that the site shares.
4. `Transform.fit`: summaries -> `Transform`, with pooled means, deviations, levels and classes.
5. `Transform.apply`, `Transform.features`, `Transform.clients`: table -> numbers, in training and prediction alike.

`inspect_files`, `validate_files` and `prepare` take several steps at once.
"""

from fedual.tables.columns import Category, ClassTarget, Number, NumberTarget, Offset, TimeTarget
from fedual.tables.prepare import Prepared, inspect_files, prepare, validate_files
from fedual.tables.propose import propose
from fedual.tables.read import Files, SiteTable, read_sites, split_sites
from fedual.tables.report import Report, SiteReport
from fedual.tables.schema import Schema
from fedual.tables.summary import Moments, Summary, merge, summarize
from fedual.tables.transform import Transform

__all__ = [
    "Category",
    "ClassTarget",
    "Files",
    "Moments",
    "Number",
    "NumberTarget",
    "Offset",
    "Prepared",
    "Report",
    "Schema",
    "SiteReport",
    "SiteTable",
    "Summary",
    "TimeTarget",
    "Transform",
    "inspect_files",
    "merge",
    "prepare",
    "propose",
    "read_sites",
    "split_sites",
    "summarize",
    "validate_files",
]
