-- The accelerator or named cluster whose price and power each name takes.
-- Grain: one row per spelling
-- Key: spelling
select
    accelerator as spelling,
    accelerator
from accelerator
union
select
    accelerator_alias.alias as spelling,
    accelerator_alias.accelerator
from accelerator_alias
anti join accelerator on accelerator_alias.alias = accelerator.accelerator
union
select
    accelerator as spelling,
    accelerator
from named_cluster
union
select
    priced_as.accelerator as spelling,
    priced_as.priced_as as accelerator
from priced_as
anti join accelerator on priced_as.accelerator = accelerator.accelerator
anti join accelerator_alias on priced_as.accelerator = accelerator_alias.alias
