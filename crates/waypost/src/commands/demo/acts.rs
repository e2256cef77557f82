//! The acts, as data: name, action and expected result of each. [`super::seen`] checks the results.

/// An act.
#[derive(Debug)]
pub(super) struct Act {
    /// Its name.
    pub(super) title: &'static str,
    /// Its action.
    pub(super) does: &'static str,
    /// The expected result.
    pub(super) must: &'static str,
}

const fn act(title: &'static str, does: &'static str, must: &'static str) -> Act {
    Act { title, does, must }
}

/// All acts, in order.
pub(super) const ACTS: [Act; 11] = [
    act(
        "A backend that makes thumbnails, three times",
        "A Deployment `images` of 3 replicas; each Pod runs this very program.",
        "three Pods that are ready",
    ),
    act(
        "One address for all of them: ClusterIP",
        "A Service `images`; a Pod `visitor` sends pictures to its address.",
        "every picture comes back small, and each of the three Pods made some",
    ),
    act(
        "From outside: NodePort",
        "A Service `images-outside`; a machine beyond the node asks the node at the Service's port.",
        "every picture comes back small, and each of the three Pods made some",
    ),
    act(
        "No address of its own: headless",
        "A Service `images-direct` without a cluster IP; the visitor looks its name up.",
        "the name leads to the addresses of the three Pods",
    ),
    act(
        "A name for something elsewhere: ExternalName",
        "A Service `archive` that stands for archive.example.com; the DNS server is asked for it.",
        "a CNAME record to archive.example.com",
    ),
    act(
        "How a program finds a Service",
        "The visitor is asked for its variables, and to look up the bare name `images`.",
        "the variables and the name both lead to the cluster IP and its port",
    ),
    act(
        "One client stays with one Pod: affinity",
        "A Service `images-sticky` with sessionAffinity ClientIP; the visitor asks again and again.",
        "every answer comes from the same Pod",
    ),
    act(
        "A rolling update without failed requests",
        "The Deployment gets a new version while the visitor and the machine outside ask without a pause.",
        "three new Pods, answers of both versions, and not one failed request",
    ),
    act(
        "A backend is killed",
        "kill -9 to the process of one Pod, while requests go on.",
        "the Pod is begun again and answers, and no request fails any more",
    ),
    act(
        "A canary by weight",
        "A second Service `images-next`, and an HTTPRoute of `images` that sends it a fifth of the requests, for a while.",
        "a fifth of the answers from the canary, then none, and not one failed request",
    ),
    act(
        "The end",
        "The Deployments, the visitor and the Services are deleted.",
        "no Pod is left, the address does not answer, the name is unknown",
    ),
];
