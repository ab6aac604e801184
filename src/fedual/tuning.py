"""How "auto" settings follow the run: the penalty parameter s, and the number of local steps.

Pure functions on small states, for every driver. The rule for s rests on one fact of all primal-dual methods here:
lambda_k = -grad f_k(theta_k) at a solved subproblem, so that between two rounds of work of client k

    ||change of theta_k|| / ||change of lambda_k||

is an inverse curvature along the client's path, a spectral step length. With s too small the iterates creep along
directions of low curvature and the ratio exceeds s; with s too large what lingers is disagreement in directions of high
curvature, and it is below s. In the words of residuals, s ||change of lambda_k|| is the primal residual
||theta_k - theta|| and ||change of theta_k||/s the dual one: primal large, s down; dual large, s up. After the n-th
communication

    s <- s (R/s)^g,    R^2 = sum w_k ||change of theta_k||^2 / sum w_k ||change of lambda_k||^2,
    g = 1 for n <= 3, (n - 2)^(-3/4) up to n = 100, 0 from then on

so s becomes a slowly moving geometric mean of R, and a constant in the end. It needs two sums of one number per
participant, beside the message; who takes part for the first time has nothing to compare with and stays out of them.
Scaling all losses by c scales s by 1/c and changes nothing else. lambda_k, theta_k and the anchors are left alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.arrays import squared_norm

__all__ = ["MOST_STEPS", "START", "Movement", "Tuner", "adapt", "local_steps", "movement", "start"]

START = 20.0  # times the theory's s, which is safe and slow; from there a run loses least on data unlike each other
_FREE = 3  # adaptations that follow the ratio at once
_POWER = 0.75  # of the falling gain: with 1/2 slow problems set s swinging, with 1 it follows too late
_LAST = 100  # s is constant after this many
_STEP = 10.0  # the factor by which a later adaptation changes s at most
_RANGE = 1e8  # the factor by which all together change s at most

_ACCURACY = 0.1  # what a round of local steps leaves of the distance to the subproblem's solution
MOST_STEPS = 1000


class Movement(NamedTuple):
    """What a participant adds to its message for the tuner: two numbers.

    Attributes:
        model: w_k ||change of theta_k||^2 since the client's round of work before; 0 for its first.
        dual: w_k ||change of lambda_k||^2, likewise.
    """

    model: Any
    dual: Any


class Tuner(NamedTuple):
    """The rule's memory.

    Attributes:
        count: adaptations so far.
        start: the first s.
    """

    count: Any
    start: Any


def start(step_size: Any) -> Tuner:
    """The memory before the first round."""
    return Tuner(jnp.int32(0), step_size)


def movement(weight: Any, visits: Any, old: tuple[Any, Any], new: tuple[Any, Any]) -> Movement:
    """One client's movement from `old` to `new`, each its (theta_k, lambda_k); `visits` counts its rounds before."""
    weight = jnp.where(visits > 0, weight, 0)
    return Movement(*(weight * squared_norm(b - a) for a, b in zip(old, new, strict=True)))


def adapt(tuner: Tuner, step_size: Any, total: Movement) -> tuple[Tuner, Any]:
    """The memory and s after a communication; `total` sums the participants' movements."""
    known = (total.model > 0) & (total.dual > 0) & jnp.isfinite(total.model) & jnp.isfinite(total.dual)
    count = tuner.count + known
    free = count <= _FREE
    gain = jnp.where(free, 1.0, jnp.maximum(count - _FREE + 1, 1).astype(step_size.dtype) ** -_POWER)
    gain = jnp.where(known & (count <= _LAST), gain, 0.0)
    ratio = jnp.where(known, total.model, 1) / jnp.where(known, total.dual, 1) / step_size**2
    change = gain * jnp.log(ratio) / 2
    limit = jnp.where(free, jnp.log(_RANGE), jnp.log(_STEP))
    changed = step_size * jnp.exp(jnp.clip(change, -limit, limit))
    return tuner._replace(count=count), jnp.clip(changed, tuner.start / _RANGE, tuner.start * _RANGE)


def local_steps(contraction: Any) -> Any:
    """Steps that leave a tenth of the distance to the subproblem's solution, if each leaves `contraction` of it.

    As a round starts where the last one ended, the error stays in proportion to how far the run still has to go.
    """
    needed = jnp.log(_ACCURACY) / jnp.log(jnp.clip(contraction, 1e-6, 1 - 1e-6))
    return jnp.clip(jnp.ceil(needed), 1, MOST_STEPS).astype(jnp.int32)
