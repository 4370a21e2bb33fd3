//go:build unix

package urlfrontier_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestURLsComeBackAsTheyWerePut puts URLs in several spellings and with metadata: a client gets
// each back in the spelling in which it came first, in the queue of its host, with all of its
// metadata.
func TestURLsComeBackAsTheyWerePut(t *testing.T) {
	p := newCluster(t, 1, nil).processes[0]
	metadata := map[string]*pb.StringList{
		"source":           {Values: []string{"https://a.example/", "größe \"x\" \n\x00"}},
		"empty":            {},
		"":                 {Values: []string{""}},
		"urlfrontier.url":  {Values: []string{"mine"}},
		"urlfrontier.url'": {Values: []string{"mine, too"}},
	}
	acks := p.put(t,
		discovered("1", &pb.URLInfo{Url: "HTTP://Gac.ICANN.org:80?language_id=9#top", Metadata: metadata}),
		discovered("2", info("http://gac.icann.org/?language_id=9", "", "")),
		discovered("", info("https://b.example/x", "queue", "other")),
		discovered("3", info("mailto:somebody@example.com", "", "")),
		discovered("4", info("", "", "")),
		&pb.URLItem{ID: "5"},
	)
	for id, want := range map[string]pb.AckMessage_Status{
		"1": pb.AckMessage_OK, "2": pb.AckMessage_SKIPPED, "https://b.example/x": pb.AckMessage_OK,
		"3": pb.AckMessage_SKIPPED, "4": pb.AckMessage_SKIPPED, "5": pb.AckMessage_SKIPPED,
	} {
		if got, ok := acks[id]; !ok || got != want {
			t.Errorf("ack of %q: %v, %v, want %v", id, got, ok, want)
		}
	}
	if len(acks) != 6 {
		t.Errorf("%d acks: %v", len(acks), acks)
	}
	want := map[string]*pb.URLInfo{
		"DEFAULT": {Url: "HTTP://Gac.ICANN.org:80?language_id=9#top", Key: "gac.icann.org", CrawlID: "DEFAULT", Metadata: metadata},
		"other":   {Url: "https://b.example/x", Key: "queue", CrawlID: "other"},
	}
	got := p.get(t, &pb.GetParams{})
	if len(got) != len(want) {
		t.Errorf("%d URLs: %v", len(got), got)
	}
	for _, u := range got {
		if !proto.Equal(u, want[u.GetCrawlID()]) {
			t.Errorf("%v, want %v", u, want[u.GetCrawlID()])
		}
	}
}
