"""What all other rooms use: errors, random numbers, files, and the one module that imports vantage6."""
