"""The collector: import journals into the store, and close the runs of dead processes."""
