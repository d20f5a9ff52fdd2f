"""The official client libraries, watched: usage and breaks of the requests that an application sends."""
