"""The user's model, data and functions, from files; inputs and sizes that the user does not give."""
