// Package detect decides how an object is to be read, and returns the decision as a raw.Plan. It
// looks at the object's first bytes; the name only breaks ties. The comment of Detect has the
// rules, which are part of urlake's interface for users: docs/sources.md describes them.
//
// Detect plans text, Parquet plans Parquet files. Package reader calls both when it opens an object
// without a plan.
package detect
