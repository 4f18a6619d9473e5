//! Operations of the host as the command line needs them, in process or through the socket of a running host.
