"""The laws, by family: one file each, one function per law or rule."""
