// Package markup reads lists of URLs that are written in XML, HTML, link format or N-Triples:
// sitemaps (https://www.sitemaps.org/protocol.html), RSS, Atom (RFC 4287), OPML, the bookmarks that
// browsers export as HTML, TimeMaps (RFC 7089) and RDF as N-Triples or N-Quads.
//
// An object is streamed: it is cut into records by the tags of their elements, and each record is
// parsed by itself, XML by encoding/xml and HTML by golang.org/x/net/html. So memory is bounded by
// the longest record, and damage costs one record: reading goes on at the next start tag. Entities
// that a document declares are not expanded; [Sniff] refuses such documents.
//
// Package lake/raw/detect plans, lake/raw/reader reads through [NewParser].
package markup
