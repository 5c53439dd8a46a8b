"""Results: waiting times, use and fragmentation over time, as a document and as a page with plots."""
