package main

// row is what the tree cannot say of routines: how to switch them off alone, what runs then, and
// which fuzz target compares the two.
type row struct {
	// routines are switched together: one is of no use without the others.
	routines []string
	// pkg is the package's folder where another package has a routine of the same name; ""
	// elsewhere.
	pkg     string
	off     []edit
	instead string
	fuzz    string
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
	// Rows: buffers, sorting, shuffle files.
	{routines: []string{"addVectors"}, off: []edit{{"addMany", "hasAVX512"}}, instead: "Go, a row at a time", fuzz: "FuzzAddParsed"},
	{routines: []string{"placeRows"}, off: []edit{{"placeMany", "hasAVX512"}}, instead: "Go", fuzz: "FuzzShuffleVectors"},
	{routines: []string{"rankAVX512"}, pkg: "lake", off: []edit{{"", "hasAVX512Ranks"}}, instead: "insertion sort", fuzz: "FuzzSortSmall"},
	{routines: []string{"spreadVectors"}, off: []edit{{"spreadMany", "hasAVX512"}}, instead: "Go", fuzz: "FuzzShuffleVectors"},
	{routines: []string{"scatterVectors"}, off: []edit{{"scatterMany", "hasAVX512"}}, instead: "Go", fuzz: "FuzzScatter"},
	{routines: []string{"askHostsPrefetch"}, off: []edit{{in: "askHosts"}}, instead: "no prefetch", fuzz: "FuzzSort"},
	{routines: []string{"askNamesPrefetch"}, off: []edit{{in: "askNames"}}, instead: "no prefetch", fuzz: "FuzzSort"},
	{routines: []string{"askRowsPrefetch"}, off: []edit{{in: "askRows"}}, instead: "no prefetch", fuzz: "FuzzSort"},
	{routines: []string{"askRefsPrefetch"}, off: []edit{{in: "askRefs"}}, instead: "no prefetch", fuzz: "FuzzSort"},

	// Parts.
	{routines: []string{"addPaths"}, off: []edit{{"addUsual", "hasPathRows"}}, instead: "Go, a row at a time", fuzz: "FuzzRowsWithVectors"},
	{routines: []string{"followNames"}, off: []edit{{"followHost", "hasPathRows"}}, instead: "Go", fuzz: "FuzzRowsWithVectors"},
	{routines: []string{"askRowEnds"}, off: []edit{{in: "askEnds"}}, instead: "no prefetch", fuzz: "FuzzRowsWithVectors"},
	{routines: []string{"byteDiffsAVX512"}, off: []edit{{"byteDiffs", "hasAVX512"}}, instead: "Go", fuzz: "FuzzTextPage"},
	{routines: []string{"copyTwiceVBMI"}, off: []edit{{"appendTwice", "hasVBMI"}}, instead: "append", fuzz: "FuzzRowsWithVectors"},

	// Reading lists.
	{routines: []string{"lineEndsVectors"}, off: []edit{{"lineEnds", "hasVectors"}}, instead: "bytes.IndexByte", fuzz: "FuzzLineEnds"},

	// Compressing text.
	{routines: []string{"encodeAVX512", "splitAVX512"}, off: []edit{{"splitUp", "hasAVX512"}}, instead: "Go", fuzz: "FuzzEncode"},
	{routines: []string{"orderAVX512"}, off: []edit{{"sort", "hasAVX512"}}, instead: "Go", fuzz: "FuzzEncode"},
	{routines: []string{"measureAVX512", "stepAVX512", "settleAVX512"}, off: []edit{{"parseWide", "hasAVX512"}}, instead: "scanAVX2 and takeAVX2", fuzz: "FuzzAssembly"},
	{routines: []string{"scanAVX2"}, off: []edit{{"scan", "hasAVX2"}}, instead: "Go", fuzz: "FuzzAssembly", unless: []edit{{"parseWide", "hasAVX512"}}},
	{routines: []string{"takeAVX2"}, off: []edit{{"take", "hasAVX2"}}, instead: "Go", fuzz: "FuzzAssembly", unless: []edit{{"parseWide", "hasAVX512"}}},
	{routines: []string{"encodeBMI2"}, off: []edit{{"encodeAll", "hasBMI2"}}, instead: "Go", fuzz: "FuzzWithoutAssembly"},
	{routines: []string{"codesAVX512", "copyAVX2"}, off: []edit{{"setMost", "hasAVX512"}}, instead: "Go", fuzz: "FuzzWithoutAssembly"},

	// Canonical URLs. Texts are hashed alike by all that looks them up, so hashVector goes with its
	// users.
	{routines: []string{"spotVectors"}, off: []edit{{"spotAll", "o.vectors"}}, instead: "Go, a URL at a time", fuzz: "FuzzParseBatch"},
	{routines: []string{"probeVectors", "matchVectors"}, off: []edit{{"lookUp", "o.vectors"}}, instead: "Go", fuzz: "FuzzParseBatch"},
	{routines: []string{"hashVector"}, off: []edit{{"NewOrigins", "hasVectors"}}, instead: "Go, with spotVectors, probeVectors and matchVectors", fuzz: "FuzzParseBatch"},
	{routines: []string{"nameVector"}, off: []edit{{"scanName", "hasVectors"}}, instead: "Go", fuzz: "FuzzWords"},
	{routines: []string{"queryVector"}, off: []edit{{"scanQuery", "hasVectors"}}, instead: "Go", fuzz: "FuzzWords"},
	{routines: []string{"scanPathAVX2"}, off: []edit{{"scanPath", "hasAVX2"}}, instead: "Go", fuzz: "FuzzWords"},
	{routines: []string{"askLines"}, pkg: "lake/urlnorm", off: []edit{{in: "askAhead"}}, instead: "no prefetch", fuzz: "FuzzParseBatch"},

	// Segments.
	{routines: []string{"askPrefetch"}, off: []edit{{in: "ask"}}, instead: "no prefetch", fuzz: "FuzzMerge"},
	{routines: []string{"placeFirstAVX512"}, off: []edit{{"placeFirst", "t.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"placeNextAVX512"}, off: []edit{{"placeNext", "t.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"partAVX512"}, off: []edit{{"part", "t.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"rankAVX512"}, pkg: "indexbuild/mph", off: []edit{{"rank", "t.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"ordinalsAVX512"}, off: []edit{{"ordinals", "t.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"topsAVX512"}, off: []edit{{"tops", "lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"markAVX512"}, off: []edit{{"mark", "l.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},
	{routines: []string{"siftAVX512"}, off: []edit{{"sift", "l.lanes"}}, instead: "Go", fuzz: "FuzzBuild"},

	// Checksums.
	{routines: []string{"askLines"}, pkg: "internal/prefetch", off: []edit{{in: "ask"}}, instead: "no prefetch", fuzz: "FuzzOpenFrames"},
}
