// Package partreader reads rows of parts by their page index, without opening a Parquet footer.
//
// A Plan names the byte ranges of the pages that hold the requested rows and columns. The caller
// fetches them, and the plan verifies and decodes them: into columns (Plan.Decode), or into runs of
// equal domains with their timestamps and sizes (Plan.DomainRuns). ReadColumns does all of it for
// one run of rows. serve/lookup reads result pages this way; indexbuild extracts and verifies
// postings.
//
// Every page is checked against the checksum in the index before it is decoded, and decoding
// allocates no more than part.MaxPageBytes a page. Damage is a *codec.CorruptError with the part
// and the offset.
package partreader
