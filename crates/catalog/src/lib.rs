//! Topics, their configurations and their streams; shared by the fronts.
