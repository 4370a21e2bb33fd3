package publish

// BuildWith is Build with options of the index builder.
var BuildWith = build

// MaxPlanned is the most batches that a plan covers.
var MaxPlanned = &maxPlanned

// LargeParts is the size of parts from which on batches are not united.
var LargeParts = &largeParts
