"""Water-filling and linear objectives over options that one or two classes share."""
