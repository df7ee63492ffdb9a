"""Process two: what moves journals into the store, and stamps what died."""
