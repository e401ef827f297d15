"""Where a program runs: policy, launch, layers, output. Knows no skills."""
