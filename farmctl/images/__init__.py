"""The kind testbed's images and programs: what they are (images/catalogue.toml), how they are built and kept."""
