// Package postgres copies a version of a lake, or a slice of it, into PostgreSQL 14 or later.
//
// An export has four steps, which workflows.PostgresExportWorkflow orders: Plan finds out which
// datasets the database lacks or has otherwise, Load copies some of their rows into tables that
// nobody reads yet, Index gives these their keys, and Finish puts them in the place of those that
// are read, in one transaction in which the rows are counted. Datasets that have not changed are
// not written. Each step may be repeated, be killed at any point, or run twice at once: what a step
// has done is noted in the transaction that does it.
//
// docs/postgres.md describes the tables.
//
// # Memory
//
// A Load holds the rows that are decoded and 8 bytes for each different host of a chunk: about 64
// MiB for URLs of usual length. PostgreSQL gets rows as binary COPY, which is encoded from columns
// of the lake's Parquet without memory for each row.
package postgres
