"""What goes out with plain files as it is: read by whoever deploys them, and imported by nobody here."""
