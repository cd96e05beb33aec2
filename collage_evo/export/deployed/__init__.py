"""Files that are copied unchanged into an export; users of the export read them, and this package imports none."""
