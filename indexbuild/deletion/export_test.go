package deletion

// OfBatchesIn is OfBatches with a bound on the domains in memory.
var OfBatchesIn = ofBatches
