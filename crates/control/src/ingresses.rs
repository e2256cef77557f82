//! Ingresses (S51): writes the Service of each IngressClass that is implemented here, and addresses and Events of its Ingresses.
//!
//! In: the states that [`routing::ingress`] derives in the cache. Out: one Service of type LoadBalancer for each class that has Ingresses, whose addresses
//! are the status of these; and an Event for everything in an Ingress that is not served as it is written. The API has no conditions for Ingresses.
//! Ingresses of other classes are not changed, except that addresses are removed that were written here.

pub(crate) mod class;
mod events;
pub(crate) mod ingress;
#[cfg(test)]
mod tests;
