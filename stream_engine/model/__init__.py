"""The model: how it is spoken to (render), what runs it (forward, backbones), where it comes from (hub)."""
