package publish

// BuildWith is Build with options of the index builder.
var BuildWith = build

// MaxPlanned is the most batches that a plan covers.
var MaxPlanned = &maxPlanned
