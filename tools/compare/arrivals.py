"""When hosts come that fetch the same, in `./dev bench fetch`."""

import math
import random
from dataclasses import dataclass

# Hosts that come together in a wave, and those that come at random in the time of one copy.
_WAVE_HOSTS = 4
_HOSTS_PER_COPY = 4
_SHARING = "-sharing"


@dataclass(frozen=True)
class Arrivals:
    """How hosts come. With sharing each sends its copy to others for one copy's time more."""

    name: str
    is_sharing: bool = False

    def starts(self, hosts: int, one_copy_s: float, seed: int) -> list[float]:
        """Seconds after the first host, of each."""
        kind = self.name.removesuffix(_SHARING)
        if kind == "one-by-one":
            return [number * one_copy_s / 2 for number in range(hosts)]
        if kind == "waves":
            return [number // _WAVE_HOSTS * one_copy_s for number in range(hosts)]
        if kind == "poisson":
            source, starts = random.Random(seed), [0.0]
            while len(starts) < hosts:
                starts.append(starts[-1] + source.expovariate(_HOSTS_PER_COPY / one_copy_s))
            return starts
        return [0.0] * hosts

    def share_s(self, one_copy_s: float) -> int:
        """Whole seconds, which `rdmc fetch --share` takes; 0 without sharing."""
        return math.ceil(one_copy_s) if self.is_sharing else 0


_SPREAD = ("one-by-one", "waves", "poisson")
ARRIVALS = {one.name: one for one in (
    Arrivals("together"), *map(Arrivals, _SPREAD), *(Arrivals(name + _SHARING, is_sharing=True) for name in _SPREAD))}
