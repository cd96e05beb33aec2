"""int8 as a rewrite of a region: which operators, between which quantisers, with which calibrated ranges."""
