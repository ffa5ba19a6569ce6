"""Who may, and who did: signatures, encryption, tokens and policies; keys that change."""
