import{a,b,c}from"./part-a867e60731798971.js";import"./part-28b538343cb46b72.js";export{b as EditRule,a as Rules,c as Vacation};
