// Package parquetin reads the records of Parquet files that other programs wrote, with arrow-go as
// the decoder. Open reads a footer, an Object answers questions about its columns, and a Parser
// yields the records. Package detect plans with the Object; package reader reads with the Parser.
//
// The files are not trusted. The footer and every page are checked before arrow-go decodes them, so
// that no length in the file makes it allocate more than the limits below, and a panic of the
// decoder becomes an error. Pages are decompressed by the codecs of this package, which replace
// arrow-go's. Schemas are nested at most 64 levels deep; footers have at most 32 MiB and take at
// most 192 MiB when decoded. The pages of all columns take at most 512 MiB together: as stored, as
// decompressed, and with what decoders make of them. A file beyond a limit is refused.
// Errors of the store are kept in unpack.Source.Err, which distinguishes them from damage to the
// file.
package parquetin
