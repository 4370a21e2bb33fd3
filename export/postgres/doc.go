// Package postgres copies a version of a lake, or a slice of it, into PostgreSQL 14 or later, and
// later versions into what is there already.
//
// An export has four steps, which workflows.PostgresExportWorkflow orders: Plan finds out what the
// database lacks, Load copies some of the rows into tables that nobody reads yet, Index gives these
// their primary keys, and Finish makes them part of what is read, in one transaction in which the
// rows are counted. Each step may be repeated, be killed at any point, or run twice at once: what a
// step has done is noted in the transaction that does it.
//
// docs/postgres.md describes the tables.
//
// # Rows
//
// A row of the table urls is a URL of a batch, with the number of the lake's rows that it stands
// for. Batches are what a lake replaces, retires and publishes, so the difference between two
// versions is a set of batches, and of domains whose takedowns differ.
//
// # Memory
//
// A Load holds the rows that are decoded, at most batchRows twice, and some buffers: about 64 MiB
// for URLs of usual length. PostgreSQL gets rows as binary COPY, which is encoded from columns of
// the lake's Parquet without memory for each row.
package postgres
