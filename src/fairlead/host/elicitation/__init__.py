"""Server requests to the host and its user: form and URL elicitation, sampling, roots."""
