package unite

// SplitBytes is the size of the parts of a split.
var SplitBytes = &splitBytes
