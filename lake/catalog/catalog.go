// Package catalog is what a lake holds: its datasets, its batches, and its published versions.
//
// The registry (registry/datasets.json) has the names and ids of the datasets and the rules by
// which new rows are made. What an ingest or a retirement has finished waits in documents below
// pending/ until a publish makes it part of a version. The manifest (index/manifest.json) lists the
// kept versions with their tags, and names the current one and the takedowns, which hide rows in
// all versions. It is the only mutable object that readers follow.
//
// # Commits
//
// Registry and manifest are sealed JSON documents that are replaced by conditional put: a reader
// sees the old state or the new one, and whoever loses the race begins again with the other one's
// document. Whatever grows with the lake is in maps of package pieces, which the states of a
// document share: datasets, batches, what was retired, and takedowns. Objects are written in the
// order parts, batch record, pending document, segment files, segment.json, version, manifest, and
// read in reverse, so every object that a manifest leads to exists.
//
// # Waiting
//
// Whoever finishes something writes one pending document, after the batch records that it names.
//
//	pending/{dataset}/{start}-{run}.json   changes of one dataset
//	pending/many/{start}-{run}.json        changes of several datasets
//
// Its key has the time at which the ingest began and the run, so writers never meet: nothing is
// read or replaced. A publish reads all documents. Of two changes of a batch the one that began
// later wins, whichever finished first, also if a version has it already: a version keeps the
// starts of its batches, and of what was retired. A commit deletes the documents that its parent
// has in full. So what the newest version has is still named here, and is published again if that
// version is lost.
//
// # Takedowns
//
// A Takedown is a rule that names a domain, a host, a URL or a prefix of URLs, and perhaps a
// dataset and a span of time. Takedowns is a set of them in memory; a Matcher tells which rows of
// one domain they hide. The TakedownDocument that a manifest names has the rules in force, the
// record of every rule that there was, and the segments that the rules have been applied to.
// Whoever changes the rules writes another document and replaces the manifest. The text of a rule
// is in the list of the rules in force only. The record stays after the rule was lifted, with a
// digest in the place of the text.
//
// docs/formats has a page for each document: registry.md, pending.md, manifest.md, version.md,
// takedowns.md and pieces.md. The map in pieces is a package of its own because the numbers of
// exports and the lists of large ingests are kept in it too; it knows nothing of lakes.
package catalog
