"""What a container gets for a GPU, as CDI edits: device nodes, environment, and the files of the NVIDIA driver."""
