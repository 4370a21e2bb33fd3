package main

// row is what the tree cannot say of routines: how to switch them off alone, what runs then, and
// which fuzz target compares the two.
type row struct {
	// routines are switched together: one is of no use without the others.
	routines []string
	off      []edit
	instead  string
	fuzz     string
	// unless are switched off in both programs, as the routine runs only where they do not.
	unless []edit
}

// edit switches a gate off in the package of a row: where function in reads it, or, if in is "",
// where the package's variable is set. A function whose gate is "" returns at once; it has no
// results.
type edit struct{ in, gate string }

// table has a row for every routine of the tree; the program fails where one is missing. Functions
// are found by name wherever they are in the package, methods without their receiver.
var table = []row{
	// Rows.
	{routines: []string{"addVectors"}, off: []edit{{"addMany", "hasVectors"}}, instead: "Go, a row at a time", fuzz: "FuzzAddParsed"},

	// Parts.
	{routines: []string{"addPaths"}, off: []edit{{"addUsualRows", "hasPathRows"}}, instead: "Go, a row at a time", fuzz: "FuzzRowsWithVectors"},

	// Reading lists.
	{routines: []string{"lineEndsVectors"}, off: []edit{{"lineEnds", "hasVectors"}}, instead: "bytes.IndexByte", fuzz: "FuzzLineEnds"},

	// Compressing text.
	{routines: []string{"measureAVX512", "scanChooseAVX512", "emitAVX512"}, off: []edit{{"parseFast", "hasAVX512"}}, instead: "scanAVX2 and chooseAVX2", fuzz: "FuzzMatches"},
	{routines: []string{"scanAVX2"}, off: []edit{{"scanChunk", "hasAVX2"}}, instead: "Go", fuzz: "FuzzMatches", unless: []edit{{"parseFast", "hasAVX512"}}},
	{routines: []string{"chooseAVX2"}, off: []edit{{"choose", "hasAVX2"}}, instead: "Go", fuzz: "FuzzMatches", unless: []edit{{"parseFast", "hasAVX512"}}},
	{routines: []string{"encodeBMI2"}, off: []edit{{"encodeAll", "hasBMI2"}}, instead: "Go", fuzz: "FuzzFrames"},
	{routines: []string{"codesAVX512", "copyAVX2"}, off: []edit{{"setFast", "hasAVX512"}}, instead: "Go", fuzz: "FuzzFrames"},

	// Canonical URLs. Texts are hashed alike by all that looks them up, so hashVector goes with its
	// users.
	{routines: []string{"locateVectors"}, off: []edit{{"locateAll", "o.vectors"}}, instead: "Go, a URL at a time", fuzz: "FuzzParseBatch"},
	{routines: []string{"probeVectors", "matchVectors"}, off: []edit{{"lookUp", "o.vectors"}}, instead: "Go", fuzz: "FuzzParseBatch"},
	{routines: []string{"hashVector"}, off: []edit{{"NewOrigins", "hasVectors"}}, instead: "Go, with locateVectors, probeVectors and matchVectors", fuzz: "FuzzParseBatch"},
}
