"""Elicitation: forms and URLs as a user is shown them, checked and sanitized.

`form_schema` reads the schema that a server sent, `forms` has the fields and checks answers, `urls` judges
URLs.
"""
