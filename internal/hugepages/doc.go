// Package hugepages lets the heap of a program be in huge pages, which Go itself does not ask for.
// A heap that grows and shrinks by gigabytes has a page fault for each 4 KiB that it gets, and a
// miss of the TLB for most loads of what it has. Where Linux gives huge pages to those who ask for
// them (transparent_hugepage is madvise), this asks.
package hugepages
