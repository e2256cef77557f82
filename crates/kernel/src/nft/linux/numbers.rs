//! Constants of the kernel's nftables interface, by message or expression.

/// Netfilter subsystem number.
pub(crate) const SUBSYSTEM: u16 = 10;
/// Multicast group of ruleset changes, as a mask.
pub(crate) const GROUP: u32 = 1 << (7 - 1);
/// Header of netfilter messages: family, version, resource.
pub(crate) const HEADER: usize = 4;
/// List element.
pub(crate) const LIST_ELEMENT: u16 = 1;

/// Message types.
pub(crate) mod message {
    pub(crate) const BATCH_BEGIN: u16 = 16;
    pub(crate) const BATCH_END: u16 = 17;
    pub(crate) const NEW_TABLE: u16 = 0;
    pub(crate) const GET_TABLE: u16 = 1;
    pub(crate) const DELETE_TABLE: u16 = 2;
    pub(crate) const NEW_CHAIN: u16 = 3;
    pub(crate) const GET_CHAIN: u16 = 4;
    pub(crate) const DELETE_CHAIN: u16 = 5;
    pub(crate) const NEW_RULE: u16 = 6;
    pub(crate) const GET_RULE: u16 = 7;
    pub(crate) const DELETE_RULE: u16 = 8;
    pub(crate) const NEW_SET: u16 = 9;
    pub(crate) const GET_SET: u16 = 10;
    pub(crate) const DELETE_SET: u16 = 11;
    pub(crate) const NEW_ELEMENT: u16 = 12;
    pub(crate) const GET_ELEMENT: u16 = 13;
    pub(crate) const DELETE_ELEMENT: u16 = 14;
    pub(crate) const NEW_GENERATION: u16 = 15;
    pub(crate) const GET_GENERATION: u16 = 16;
    pub(crate) const TRACE: u16 = 17;
}

/// Attributes of a generation.
pub(crate) mod generation {
    pub(crate) const NUMBER: u16 = 1;
}

/// Attributes of a table.
pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const USER_DATA: u16 = 6;
}

/// Attributes of a chain.
pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const HOOK_NUMBER: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
}

/// Attributes of a rule and of an expression in it.
pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const EXPRESSION_NAME: u16 = 1;
    pub(crate) const EXPRESSION_DATA: u16 = 2;
}

/// Attributes and flags of a set.
pub(crate) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LENGTH: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LENGTH: u16 = 7;
    pub(crate) const DESCRIPTION: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const TIMEOUT: u16 = 11;
    pub(crate) const USER_DATA: u16 = 13;
    pub(crate) const EXPRESSION: u16 = 17;
    pub(crate) const EXPRESSIONS: u16 = 18;
    pub(crate) const DESCRIPTION_SIZE: u16 = 1;
    pub(crate) const DESCRIPTION_CONCAT: u16 = 2;
    pub(crate) const FIELD_LENGTH: u16 = 1;

    pub(crate) const INTERVAL: u32 = 0x04;
    pub(crate) const MAP: u32 = 0x08;
    pub(crate) const TIMEOUTS: u32 = 0x10;
    pub(crate) const DYNAMIC: u32 = 0x20;
    pub(crate) const CONCAT: u32 = 0x80;
    /// Data type of verdict maps.
    pub(crate) const VERDICTS: u32 = 0xffff_ff00;
}

/// Attributes and flags of an element.
pub(crate) mod element {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const EXPRESSION: u16 = 7;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const EXPRESSIONS: u16 = 11;
    pub(crate) const INTERVAL_END: u32 = 1;
}

/// Attributes of data and of a verdict in it.
pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;
}

/// Attributes of a counter.
pub(crate) mod counter {
    pub(crate) const BYTES: u16 = 1;
    pub(crate) const PACKETS: u16 = 2;
}

/// Verdicts.
pub(crate) mod verdict {
    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const CONTINUE: i32 = -1;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    pub(crate) const RETURN: i32 = -5;
}
