"""What everything is measured and compiled for: the processor, its cores, and who else uses them."""
