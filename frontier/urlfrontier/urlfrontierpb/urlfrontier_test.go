package urlfrontierpb_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// compile returns the protocol as its .proto file has it.
func compile(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{})}
	files, err := c.Compile(t.Context(), "urlfrontier.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// TestGeneratedCodeIsCurrent compares the generated code with the .proto file.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	want := protodesc.ToFileDescriptorProto(compile(t))
	got := protodesc.ToFileDescriptorProto(urlfrontierpb.File_urlfrontier_proto)
	want.SourceCodeInfo = nil
	if !proto.Equal(got, want) {
		t.Error("the generated code is not that of urlfrontier.proto: run `make proto`")
	}
	for _, method := range urlfrontierpb.URLFrontier_ServiceDesc.Methods {
		if urlfrontierpb.File_urlfrontier_proto.Services().Get(0).Methods().ByName(protoreflect.Name(method.MethodName)) == nil {
			t.Errorf("the generated service has a method %s: run `make proto`", method.MethodName)
		}
	}
	service := urlfrontierpb.URLFrontier_ServiceDesc
	if n, all := len(service.Methods)+len(service.Streams), urlfrontierpb.File_urlfrontier_proto.Services().Get(0).Methods().Len(); n != all {
		t.Errorf("the generated service has %d methods of %d: run `make proto`", n, all)
	}
}

// TestProtocolIsThePeers compares names, numbers and types with those of the protocol, version 2.6,
// which testdata/protocol.txt lists: whatever differs, a client of the peer's does not understand.
func TestProtocolIsThePeers(t *testing.T) {
	data, err := os.ReadFile("testdata/protocol.txt")
	if err != nil {
		t.Fatal(err)
	}
	file := compile(t)
	got := []string{"package " + string(file.Package())}
	methods := file.Services().Get(0).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		stream := func(yes bool) string {
			if yes {
				return "stream "
			}
			return ""
		}
		got = append(got, fmt.Sprintf("%s(%s%s) %s%s", m.FullName(), stream(m.IsStreamingClient()), m.Input().FullName(), stream(m.IsStreamingServer()), m.Output().FullName()))
	}
	enums := func(all protoreflect.EnumDescriptors) {
		for i := range all.Len() {
			values := all.Get(i).Values()
			for j := range values.Len() {
				got = append(got, fmt.Sprintf("%s = %d", values.Get(j).FullName(), values.Get(j).Number()))
			}
		}
	}
	enums(file.Enums())
	messages := file.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		got = append(got, "message "+string(m.FullName()))
		enums(m.Enums())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch {
			case f.IsMap():
				kind = fmt.Sprintf("map<%v, %s>", f.MapKey().Kind(), typeName(f.MapValue()))
			case f.Message() != nil || f.Enum() != nil:
				kind = typeName(f)
			}
			line := fmt.Sprintf("%s = %d %v %s", f.FullName(), f.Number(), f.Cardinality(), kind)
			if o := f.ContainingOneof(); o != nil {
				line += " of " + string(o.Name())
			}
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if diff := gocmp.Diff(strings.Split(strings.TrimSpace(string(data)), "\n"), got); diff != "" {
		t.Errorf("(-protocol +ours)\n%s", diff)
	}
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}
