// Command access compares docs/access.txt with the authorizers of kube-apiserver: it builds the Node and RBAC authorizers of a
// pinned release over that release's default policy, adds the objects of the test that writes the table, and decides every cell.
// Rows of kinds that Kubernetes does not have, and columns of callers it does not have, are left out.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	rbacvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

func main() {
	roles := []*rbacv1.Role{}
	for _, list := range bootstrappolicy.NamespaceRoles() {
		for i := range list {
			roles = append(roles, &list[i])
		}
	}
	rbs := []*rbacv1.RoleBinding{}
	for _, list := range bootstrappolicy.NamespaceRoleBindings() {
		for i := range list {
			rbs = append(rbs, &list[i])
		}
	}
	crs := []*rbacv1.ClusterRole{}
	for _, r := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		r := r
		crs = append(crs, &r)
	}
	for n := 0; n < 4; n++ {
		for _, r := range crs {
			if r.AggregationRule == nil {
				continue
			}
			r.Rules = nil
			for _, s := range r.AggregationRule.ClusterRoleSelectors {
				sel, _ := metav1.LabelSelectorAsSelector(&s)
				for _, o := range crs {
					if o.Name != r.Name && sel.Matches(labels.Set(o.Labels)) {
						r.Rules = append(r.Rules, o.Rules...)
					}
				}
			}
		}
	}
	crbs := []*rbacv1.ClusterRoleBinding{}
	for _, b := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		b := b
		crbs = append(crbs, &b)
	}
	// As kubeadm does for join tokens.
	crbs = append(crbs, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:kubelet-bootstrap"},
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{Kind: "Group", Name: "system:bootstrappers:kubeadm:default-node-token"}}})
	for role, u := range map[string]string{"view": "vera", "edit": "ed", "admin": "ada"} {
		rbs = append(rbs, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: role},
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{{Kind: "User", Name: u}}})
	}
	_, static := rbacvalidation.NewTestRuleResolver(roles, rbs, crs, crbs)
	r := rbac.New(static, static, static, static)
	g := node.NewGraph()
	for name, n := range map[string]string{"own": "n1", "other": "n2"} {
		g.AddPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "u"}, Spec: corev1.PodSpec{NodeName: n, ServiceAccountName: name,
			Volumes: []corev1.Volume{
				{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}}}})
	}
	n := node.NewAuthorizer(g, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	all := union.New(authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), n, r)

	type caller struct {
		user          string
		groups        []string
		own, nodeName string
	}
	au := "system:authenticated"
	callers := map[string]caller{
		"anonymous":    {"system:anonymous", []string{"system:unauthenticated"}, "own", "n1"},
		"bootstrapper": {"system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", au}, "own", "n1"},
		"node-own":     {"system:node:n1", []string{"system:nodes", au}, "own", "n1"},
		"node-other":   {"system:node:n1", []string{"system:nodes", au}, "other", "n2"},
		"account":      {"system:serviceaccount:team:robot", []string{"system:serviceaccounts", "system:serviceaccounts:team", au}, "own", "n1"},
		"view":         {"vera", []string{au}, "own", "n1"}, "edit": {"ed", []string{au}, "own", "n1"}, "admin": {"ada", []string{au}, "own", "n1"},
		"master": {"root", []string{"system:masters", au}, "own", "n1"},
	}
	verbs := []string{"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"}
	letters := "cglwupdD"
	clusterScoped := map[string]bool{"namespaces": true, "nodes": true, "selfsubjectreviews": true, "tokenreviews": true, "selfsubjectaccessreviews": true, "selfsubjectrulesreviews": true, "subjectaccessreviews": true, "certificatesigningrequests": true, "ingressclasses": true, "ipaddresses": true, "servicecidrs": true, "clusterrolebindings": true, "clusterroles": true, "apiservices": true, "csidrivers": true, "csinodes": true, "flowschemas": true, "persistentvolumes": true, "prioritylevelconfigurations": true, "runtimeclasses": true, "storageclasses": true, "volumeattachments": true}
	f, _ := os.Open(os.Args[1])
	sc := bufio.NewScanner(f)
	var titles []string
	cells, diff := 0, 0
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		fields := strings.Fields(line)
		if fields[0] == "resource" {
			titles = fields[1:]
			continue
		}
		if strings.Contains(fields[0], "waypost.dev") {
			continue
		}
		name, sub, _ := strings.Cut(fields[0], "/")
		res, group, _ := strings.Cut(name, ".")
		// The last column is system:masters: it has every verb there is.
		exist := fields[len(fields)-1]
		for i, t := range titles {
			c, ok := callers[t]
			if !ok {
				continue
			}
			want := ""
			for v, verb := range verbs {
				if !strings.ContainsRune(exist, rune(letters[v])) {
					continue
				}
				hasName := verb == "get" || verb == "update" || verb == "patch" || verb == "delete" || sub != ""
				object := c.own
				if res == "nodes" || res == "leases" || res == "csinodes" {
					object = c.nodeName
				}
				if res == "namespaces" {
					object = "team"
				}
				ns := "team"
				if clusterScoped[res] {
					ns = ""
				}
				if res == "namespaces" && hasName {
					ns = "team"
				}
				if res == "leases" && strings.HasPrefix(c.user, "system:node:") {
					ns = "kube-node-lease"
				}
				if !hasName {
					object = ""
				}
				a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: c.user, Groups: c.groups}, Verb: verb, APIGroup: group, APIVersion: "v1", Resource: res, Subresource: sub, Namespace: ns, Name: object, ResourceRequest: true}
				d, _, _ := all.Authorize(context.Background(), a)
				if d == authorizer.DecisionAllow {
					want += string(letters[v])
				}
			}
			if want == "" {
				want = "-"
			}
			cells++
			if want != fields[i+1] {
				diff++
				fmt.Printf("%s %s: kubernetes %s, ours %s\n", fields[0], t, want, fields[i+1])
			}
		}
	}
	fmt.Printf("%d cells, %d differ\n", cells, diff)
	if cells == 0 || diff > 0 {
		os.Exit(1)
	}
}
