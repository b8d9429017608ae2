"""Configuration of Fairlead: models, layers, merging, validation, consent and edits.

Other packages use `load` (`load_config`, `LoadedServer`), `models`, `paths`, `principal`, `edit_scope`,
`consent`, `admin_policy` and the sub-packages `document` (files), `secrets` (references, masking) and
`dialects` (other agents).
"""
