"""The demo: real scenes, played with the prefix cache off and on."""
