# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which machines to rent, and when, for the least cost per unit of work.

`Planner` decides for a market with bids, after BidBrain (Proteus, EuroSys 2017).
`DeadlinePlanner` decides for a market with a flat price and machines that come and go;
the job is done by its deadline whatever happens. Both are pure: a state goes in, and a
decision with its reason and the cost of each alternative comes out. The modules of this
package use numpy, and neither torch nor the native module.

```python
from pathlib import Path
from aikido_torch.market import AuctionMarket, Planner, PlannerState, Work, read_prices

(trace,) = read_prices(Path("us-east-1b_c3.xlarge.csv.gz"))
market = AuctionMarket(trace, kind="c3.xlarge", on_demand=0.21)
work = Work(rates={"c3.xlarge": 40.0}, max_machines=16)
now = trace.times_s[-1]
plan = Planner(work).decide(PlannerState(markets=[market.at(now)]))
print(plan.reason)
```
"""

from aikido_torch.market._auction import AuctionMarket as AuctionMarket
from aikido_torch.market._beta import beta_table as beta_table
from aikido_torch.market._deadline import DeadlineJob as DeadlineJob
from aikido_torch.market._deadline import DeadlinePlanner as DeadlinePlanner
from aikido_torch.market._deadline import JobState as JobState
from aikido_torch.market._errors import MarketError as MarketError
from aikido_torch.market._planner import Planner as Planner
from aikido_torch.market._planner import PlannerState as PlannerState
from aikido_torch.market._planner import Work as Work
from aikido_torch.market._read import read_capacity as read_capacity
from aikido_torch.market._read import read_prices as read_prices
from aikido_torch.market._survival import Survival as Survival

# The names of this package are not part of the stable interface yet.
__all__: list[str] = []
