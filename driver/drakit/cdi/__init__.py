"""The Container Device Interface: specification documents (``spec``) and the directory that a container runtime reads (``directory``)."""
