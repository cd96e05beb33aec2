"""How wrong an answer may be, and how wrong it is: budgets, a person's metric, errors over samples, their split."""
