"""The real scheduler among pretended workers under virtual time; one seed is one whole history."""
