"""Values that flow through a search: search space, genome, cost model, outcome of a placement, failure."""
