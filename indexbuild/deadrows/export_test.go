package deadrows

// WriteIn is Write with a bound on the domains in memory.
var WriteIn = write
